# needs openssl
certificate ca; certificate proxies; certificate tokens-ca; certificate tidemark
tidemark serve
kubectl create serviceaccount bot
kubectl create token bot --duration=8h
ln -s "$(dirname "$KUBECONFIG")" data
umask 077
tidemark kubeconfig ./data --user=alice --group=developers --expires=24h > alice.kubeconfig
[ "$(stat -c %a alice.kubeconfig)" = 600 ]
kubectl --kubeconfig=alice.kubeconfig auth whoami | grep developers
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout alice.key -out alice.csr -subj /O=developers/CN=alice
sed -n '/^apiVersion: certificates/,/^```/p' "$ROOT/docs/how-to/add-users.md" | grep -v '^```' >alice.yaml
sed "s/REQUEST/$(base64 < alice.csr | tr -d '\n')/" alice.yaml | kubectl create -f -
kubectl certificate approve alice
kubectl wait --for=jsonpath='{.status.certificate}' csr/alice
kubectl get csr alice -o jsonpath='{.status.certificate}' | base64 -d > alice.crt
(
  cp "$KUBECONFIG" csr.kubeconfig
  export KUBECONFIG=csr.kubeconfig
  kubectl config set-credentials alice --client-certificate=alice.crt --client-key=alice.key
  kubectl config set-context --current --user=alice
  kubectl auth whoami | grep developers
)
tidemark serve --client-ca-file=ca.crt
echo 'a-long-random-token,alice,1,"developers"' > tokens.csv
chmod 0600 tokens.csv
tidemark serve --token-auth-file=tokens.csv
# The document says TOKEN.
kubectl() { command kubectl "${@/TOKEN/a-long-random-token}"; }
kubectl auth whoami --token=TOKEN
kubectl auth whoami --token=TOKEN | grep alice
kubectl create clusterrolebinding alice --clusterrole=view --user=alice
kubectl auth can-i --list --token=TOKEN
admin=$KUBECONFIG
cp "$KUBECONFIG" alice.kubeconfig
export KUBECONFIG=alice.kubeconfig
kubectl config set-credentials alice --token=TOKEN
kubectl config set-context --current --user=alice
kubectl config delete-user tidemark-admin
kubectl get pods
fails kubectl create namespace other
export KUBECONFIG=$admin
tidemark serve --enable-bootstrap-token-auth
kubectl -n kube-system create secret generic bootstrap-token-abcdef --type=bootstrap.kubernetes.io/token \
  --from-literal=token-id=abcdef --from-literal=token-secret=0123456789abcdef \
  --from-literal=usage-bootstrap-authentication=true --from-literal=expiration=2030-01-01T00:00:00Z
kubectl auth whoami --token=abcdef.0123456789abcdef | grep system:bootstrap:abcdef
tidemark serve --requestheader-client-ca-file=proxies.crt --requestheader-allowed-names=front-proxy-client \
  --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group
sed -n '/^```yaml/,/^```/p' "$ROOT/docs/how-to/add-users.md" | grep -v '^```' >webhook.kubeconfig
tidemark serve --authentication-token-webhook-config-file=webhook.kubeconfig --authentication-token-webhook-version=v1
