"""Train a drafter for any verifier: its own answers to prompts, kept as features, then training, a card."""
