"""What the weights of checkpoints are made of, by the way that each checkpoint stores them."""
