# Every script of this directory begins with this one. Its directory is empty but for the examples. After a pipe, the
# scripts call grep without -q: it would end at the first match, and the command before it with SIGPIPE.
set -euo pipefail
ln -s "$ROOT/examples" "$ROOT/deploy" .
server=
trap 'stop' EXIT

# stop stops the server, as Ctrl-C does, and wants a clean end.
stop() {
	[ -n "$server" ] || return 0
	kill "$server"
	wait "$server"
	server=
}

# tidemark starts a server in the background in place of the one before, on a free port, and sets KUBECONFIG and URL. It
# runs the other commands to their ends.
tidemark() {
	if [ "${1:-}" != serve ]; then
		command tidemark "$@"
		return
	fi
	stop
	rm -f serve.out # the one of the server before says "Ready", too
	command tidemark "$@" --secure-port=0 >serve.out 2>&1 &
	server=$!
	for _ in $(seq 1200); do
		if grep -q '^Ready in' serve.out 2>/dev/null; then
			export KUBECONFIG=$(sed -n 's/^ *export KUBECONFIG=//p' serve.out)
			URL=$(sed -n 's/^ *address  //p' serve.out)
			return
		fi
		kill -0 "$server" 2>/dev/null || break
		sleep 0.05
	done
	cat serve.out
	server=
	return 1
}

# go is Go, but its "go run" runs the program that the test has built.
go() {
	if [ "$1 $2" = "run ./cmd/tidemark" ]; then
		tidemark "${@:3}"
	else
		command go "$@"
	fi
}

# curl reaches the server that runs.
curl() { command curl --silent --show-error --fail "${@/https:\/\/127.0.0.1:6443/${URL:-}}"; }

# fails runs a command that must fail. Its output is in the file "failure".
fails() {
	if "$@" >failure 2>&1; then
		echo "this succeeded: $*"
		return 1
	fi
}

# certificate NAME makes NAME.crt and NAME.key, signed by itself.
certificate() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj "/CN=$1" \
		-addext "subjectAltName=DNS:$1.example.com" -keyout "$1.key" -out "$1.crt" 2>/dev/null
}
