tidemark serve --in-memory
sed -n 's/^    //p' "$ROOT/docs/mutating-policies.md" | sed '/^kubectl/,$d' | kubectl apply -f -
kubectl create configmap settings
kubectl get configmap settings --show-labels
kubectl get configmap settings --show-labels | grep 'team=default'
