"""The stages of a question, one module each. A stage maps a value to a value, returns `Outcome(value, dropped, note)`
and knows nothing of the others, of the recorder, or of the pipeline that calls it."""
