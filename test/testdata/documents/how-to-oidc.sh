# needs openssl
# The issuer of the document does not answer: the server starts, and refuses its tokens.
certificate login-ca
tidemark serve --oidc-issuer-url=https://login.example.com --oidc-client-id=kubernetes \
  --oidc-username-claim=email --oidc-groups-claim=groups --oidc-groups-prefix=oidc: --oidc-ca-file=login-ca.crt
sed -n '/^kind: AuthenticationConfiguration/,/^```/p' "$ROOT/docs/how-to/oidc.md" | grep -v '^```' >rest
{ echo 'apiVersion: apiserver.config.k8s.io/v1'; cat rest; } >authentication.yaml
tidemark serve --authentication-config=authentication.yaml
kubectl create clusterrolebinding developers --clusterrole=edit --group=oidc:developers
ID_TOKEN=header.body.signature
echo "{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"TokenReview\",\"spec\":{\"token\":\"$ID_TOKEN\"}}" | kubectl create -o jsonpath='{.status.error}' -f -
