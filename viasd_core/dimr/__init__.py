"""Which layers the slim verifier q' keeps: masks, where they are stored, and what a mask costs."""
