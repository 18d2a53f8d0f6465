# The server stands in for the cluster. It runs no Pods, so another server with the configuration of the manifests stands
# in for the Pod, and the address of the port-forward is that of this one.
tidemark serve --data-dir=cluster
token=$(head -c 24 /dev/urandom | base64 | tr +/ -_)
printf '%s,admin,admin,"system:masters"\n' "$token" >tokens.csv
kubectl create namespace tidemark
kubectl create secret generic tidemark-users --namespace=tidemark --from-file=tokens.csv
kubectl apply -k deploy/kubernetes
chmod 0600 tokens.csv
tidemark serve --in-memory --token-auth-file=tokens.csv --tls-san=tidemark.tidemark.svc
# The document has the port of the port-forward.
kubectl() { command kubectl "${@/https:\/\/127.0.0.1:6443/$URL}"; }
tide="kubectl --server=https://127.0.0.1:6443 --token=$token --insecure-skip-tls-verify"
$tide get configmap kube-root-ca.crt -o 'jsonpath={.data.ca\.crt}' >ca.crt
export KUBECONFIG=$PWD/tidemark.kubeconfig
kubectl config set-cluster tidemark --server=https://tidemark.tidemark.svc --certificate-authority=ca.crt --embed-certs
kubectl config set-credentials admin --token="$token"
kubectl config set-context tidemark --cluster=tidemark --user=admin
kubectl config use-context tidemark
kubectl --server="$URL" --tls-server-name=tidemark.tidemark.svc get namespaces
