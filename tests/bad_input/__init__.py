"""Every public call with every kind of wrong value: a named error, and nothing has changed."""
