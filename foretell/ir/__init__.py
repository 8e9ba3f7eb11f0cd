"""Level 0: element types, symbolic dimensions and tensor expressions, shared by every IR."""
