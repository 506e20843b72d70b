"""From a file of records to packed rows."""
