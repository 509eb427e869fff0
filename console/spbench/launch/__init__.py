"""Launching: hosts, launchers (one module each) and detection; cases -> argv, env, hostfile."""
