#!/bin/sh
# Makes an incident in the namespace shop of a running server, for docs/tutorials/what-happened.md. Three actors write to
# one Deployment: deploy-bot releases, alice scales, and balancer, a controller, always wants three replicas.
# $KUBECONFIG is that of the server, in its data directory.
set -eu
here=$(dirname "$0")
users=$(mktemp -d)
balancer=
trap 'rm -rf "$users"; [ -z "$balancer" ] || kill "$balancer" 2>/dev/null || true' EXIT
for user in deploy-bot alice balancer; do
	tidemark kubeconfig "$(dirname "$KUBECONFIG")" --user=$user --group=system:masters >"$users/$user"
done

# as runs kubectl as a user.
as() {
	user=$1
	shift
	kubectl --kubeconfig="$users/$user" --namespace=shop "$@"
}

# balance is the controller: whatever the replicas are, there shall be three. It ends when the Deployment is paused.
balance() {
	until [ "$(as balancer get deployment web -o jsonpath='{.spec.paused}')" = true ]; do
		[ "$(as balancer get deployment web -o jsonpath='{.spec.replicas}')" = 3 ] || as balancer scale deployment web --replicas=3
		sleep 0.2
	done
}

# settled waits until the controller has done its work.
settled() { as alice wait deployment web --for=jsonpath='{.spec.replicas}'=3 --timeout=60s; }

as deploy-bot create namespace shop
as deploy-bot apply -f "$here/web.yaml"
balance &
balancer=$!
as alice scale deployment web --replicas=6
settled
as deploy-bot set image deployment web app=registry.example.com/web:v2
as alice scale deployment web --replicas=8
settled
as alice delete configmap settings
as alice patch deployment web --type=merge -p '{"spec":{"paused":true}}'
wait "$balancer"
balancer=
