"""Requests in, ticks through the model, tokens out.

A request's way through the files: `spec` checks it, `inbox` numbers it, `admission` lets it in,
`prefill_lane` computes its prompt, `decode_lane` plans steps (`plans`, `flight`) that a router
(`routers`, `launching`, `ring`) sends to the device, `commit` applies the tokens (`text`,
`sampling`), `retire` ends it. `preemption` takes its blocks when the pool is short. `core` is the
tick that calls them in this order, `loop` and `thread` run ticks, `requests` is what the caller
holds, `rows` what the scheduler remembers.
"""
