go run ./cmd/tidemark serve --in-memory
kubectl get namespaces
