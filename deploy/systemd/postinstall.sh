#!/bin/sh
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers tidemark.conf
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# An upgrade restarts a server that runs. The first installation starts none.
	systemctl try-restart tidemark.service
fi
