"""The fabric's topology, its paths, and which component is to blame. No IO."""
