tidemark serve
bash examples/incident/run.sh
tidemark history -n shop
tidemark history -n shop deploy/web --field=spec.replicas | grep "balancer via .* spec.replicas 6 -> 3"
tidemark history -n shop deploy/web --field=spec.replicas
tidemark history -A --by=alice --since=30m
tidemark history -A --exclude=leases,events --exclude-server
tidemark blame -n shop deploy/web --field=spec.template.spec.containers.image
V=$(tidemark history -n shop deploy/web --verb=create -o name | cut -d/ -f2)
tidemark at $V -- kubectl get deployments,configmaps -n shop
set +e
tidemark diff -n shop --from=$V
[ $? = 1 ] || exit 1
set -e
tidemark undelete -n shop configmap/settings
tidemark restore -n shop deploy/web --at=$V
tidemark fork --name=before --at=$V
kubectl --kubeconfig=before.kubeconfig -n shop get configmap settings
stop
tidemark history -n shop deploy/web --data-dir=$(dirname $KUBECONFIG)
