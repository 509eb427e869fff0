"""The planner: from measured layers and links to the best parallel plan.

Profiles (`profile`, `torchgraph`, `profile_json`, `profile_files`) become states (`states`,
`linear`), clusters come from files, presets or a recorded run (`cluster`, `cluster_yaml`,
`presets`, `cluster_measured`), and a search (`hpgo`) makes a `Plan` (`plans`) of both.

numpy is imported inside functions only: a console command that plans nothing starts without it.
"""
