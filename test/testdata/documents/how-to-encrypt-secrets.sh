umask 077
cat >encryption.yaml <<EOF
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, configmaps]
  providers:
  - secretbox: {keys: [{name: key1, secret: $(head -c 32 /dev/urandom | base64)}]}
  - identity: {}
EOF
tidemark serve --encryption-provider-config=encryption.yaml --encryption-provider-config-automatic-reload
kubectl create secret generic s --from-literal=k=v
kubectl get secrets -A -o json | kubectl replace -f -
