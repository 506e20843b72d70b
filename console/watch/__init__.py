"""What runs where and how far: a run followed, the state of all, and machines taken out for a while."""
