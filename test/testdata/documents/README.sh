go run ./cmd/tidemark serve
kubectl create configmap hello --from-literal=k=v
kubectl get configmaps --watch -o name &
watch=$!
kubectl apply --server-side -f examples/manifests/
kubectl apply -f examples/definition.yaml
kubectl apply -f examples/object.yaml
kubectl get deployments | grep '0/2'
tidemark fork --name=try
tidemark backup tidemark.tar
tidemark history -A
tidemark help
kill "$watch"
