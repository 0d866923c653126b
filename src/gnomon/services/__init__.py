"""The imperative shell: one role each, a step that can be called alone and a loop around it."""
