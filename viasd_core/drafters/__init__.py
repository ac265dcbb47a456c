"""Drafters behind one interface (`base.Drafter`)."""
