"""The JSON of the API: what may be sent, what comes back, and the conversions between JSON and the model."""
