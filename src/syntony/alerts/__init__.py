"""What is worth a person's attention: rules, incidents, one page per cause. No IO."""
