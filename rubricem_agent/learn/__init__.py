"""What the algorithm is made of apart from a framework: credit, curriculum, deferral, batches, checkpoints."""
