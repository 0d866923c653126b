"""Jobs as users write them: fields, validation, JSON Schema and export."""
