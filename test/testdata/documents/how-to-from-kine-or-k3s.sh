# needs jq
# A server of this project stands in for k3s.
tidemark serve --in-memory
kubectl apply -f examples/definition.yaml
kubectl apply -f examples/object.yaml
kubectl create namespace shop
kubectl create configmap settings -n shop --from-literal=k=v
sed -n '/^```bash/,/^```/p' "$ROOT/docs/how-to/from-kine-or-k3s.md" | grep -v '^```' >export.sh
#!/usr/bin/env bash
bash export.sh
tidemark serve --data-dir=data
kubectl apply --server-side -f definitions.jsonl
kubectl apply --server-side --force-conflicts -f objects.jsonl
kubectl get configmap settings -n shop
kubectl get database orders
