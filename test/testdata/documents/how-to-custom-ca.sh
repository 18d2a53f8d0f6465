# needs openssl
certificate public; certificate internal
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 \
  -subj /CN=example-ca -keyout ca.key -out ca.crt
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=api.example.com \
  -addext subjectAltName=DNS:api.example.com,DNS:localhost,IP:127.0.0.1 -keyout server.key -out server.csr
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 90 \
  -copy_extensions copy -out server.crt
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /O=system:masters/CN=alice \
  -keyout alice.key -out alice.csr
openssl x509 -req -in alice.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 90 -out alice.crt
tidemark serve --tls-cert-file=server.crt --tls-private-key-file=server.key
tidemark serve --tls-cert-file=server.crt --tls-private-key-file=server.key \
  --tls-sni-cert-key=public.crt,public.key:api.example.com,*.api.example.com \
  --tls-sni-cert-key=internal.crt,internal.key
tidemark serve --tls-min-version=VersionTLS13
tidemark serve --tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
tidemark serve --client-ca-file=ca.crt
tidemark serve --tls-cert-file=server.crt --tls-private-key-file=server.key --client-ca-file=ca.crt
# The document has port 6443.
kubectl() { command kubectl "${@/localhost:6443/localhost:${URL##*:}}"; }
export KUBECONFIG=alice.kubeconfig
kubectl config set-cluster tidemark --server=https://localhost:6443 --certificate-authority=ca.crt --embed-certs
kubectl config set-credentials alice --client-certificate=alice.crt --client-key=alice.key --embed-certs
kubectl config set-context tidemark --cluster=tidemark --user=alice
kubectl config use-context tidemark
kubectl auth whoami
kubectl auth whoami | grep 'alice'
