"""CURE (arXiv 2608.00531): where a parallel draft is unsure, and the tree of repairs tried there."""
