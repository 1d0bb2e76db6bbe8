"""Dead letters of a sink: they are written in the transaction of the output of their batch, or before it."""
