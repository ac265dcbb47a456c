"""Train a drafter for any verifier: prompts, the verifier's own answers, shards of features, training, a card."""
