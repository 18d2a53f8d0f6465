tidemark serve --in-memory
kubectl apply -f examples/policies/pod-security.yaml
kubectl label namespace default pod-security=restricted
fails kubectl run web --image=nginx
grep -q 'allowPrivilegeEscalation: containers must set' failure
