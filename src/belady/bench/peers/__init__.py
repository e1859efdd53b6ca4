"""Other engines beside ours: their environments, the models in the forms they read, and the processes that run them."""
