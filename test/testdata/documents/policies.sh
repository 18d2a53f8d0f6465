tidemark serve --in-memory
sed -n 's/^    //p' "$ROOT/docs/policies.md" | sed '/^kubectl/,$d' | kubectl apply -f -
kubectl create configmap limits --from-literal=max=3
kubectl create namespace prod
kubectl label namespace prod env=prod
fails kubectl create deployment web --namespace=prod --image=nginx --replicas=5
grep -q 'at most 3 replicas are allowed' failure
