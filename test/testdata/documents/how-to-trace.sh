# needs curl
sed -n '/^# tracing.yaml/,/^```/p' "$ROOT/docs/how-to/trace.md" | grep -v '^```' >tracing.yaml
tidemark serve --tracing-config-file=tracing.yaml
kubectl get configmap kube-root-ca.crt -o 'jsonpath={.data.ca\.crt}' >ca.crt
TOKEN=$(cat ~/.local/share/tidemark/pki/admin.token)
curl --cacert ca.crt -H "Authorization: Bearer $TOKEN" \
  -H 'traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' https://127.0.0.1:6443/api/v1/namespaces
