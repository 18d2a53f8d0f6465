# needs openssl
certificate ca
tidemark serve --data-dir=data
kubectl config set-cluster tidemark --server=https://proxy.example.com:6443 --tls-server-name=apiserver-loopback-client
kubectl config set-cluster tidemark --server=https://proxy.example.com:8443 --certificate-authority=ca.crt --embed-certs
