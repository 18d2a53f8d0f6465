#!/bin/sh
# Writes the completions of shells to a directory.
set -eu
mkdir -p "$1"
export GOWORK=off CGO_ENABLED=0
go build -trimpath -o "$1/tidemark" ./cmd/tidemark
"$1/tidemark" completion bash >"$1/tidemark.bash"
"$1/tidemark" completion zsh >"$1/_tidemark"
"$1/tidemark" completion fish >"$1/tidemark.fish"
rm "$1/tidemark"
