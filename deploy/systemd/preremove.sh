#!/bin/sh
set -e
# dpkg calls it with "remove" or "upgrade", rpm with the number of versions that remain.
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now tidemark.service
	fi
	;;
esac
