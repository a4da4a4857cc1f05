"""The fabric's topology, its paths, and localisation of faulty components. No IO."""
