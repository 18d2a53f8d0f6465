go run ./cmd/tidemark serve
kubectl get namespaces
kubectl create namespace shop
kubectl create configmap hello -n shop --from-literal=greeting=hi
kubectl get configmaps -n shop
kubectl apply -f - <<'END'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: websites.example.com
spec:
  group: example.com
  names: {plural: websites, singular: website, kind: Website}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              title: {type: string}
END
cat > website.yaml <<'END'
apiVersion: example.com/v1
kind: Website
metadata:
  name: home
  namespace: shop
spec:
  title: Hello
END
kubectl apply --server-side --field-manager=bob -f website.yaml
set +e
sed s/Hello/Bye/ website.yaml | kubectl apply --server-side --field-manager=alice -f -
[ $? = 1 ] || exit 1
set -e
V=$(kubectl get configmap hello -n shop -o jsonpath='{.metadata.resourceVersion}')
kubectl patch configmap hello -n shop --type=merge -p '{"data":{"greeting":"hello"}}'
kubectl get --raw "/api/v1/namespaces/shop/configmaps?resourceVersion=$V&resourceVersionMatch=Exact"
kubectl get --raw "/api/v1/namespaces/shop/configmaps?resourceVersion=$V&resourceVersionMatch=Exact" | grep '"greeting":"hi"'
go run ./cmd/tidemark serve # the restart
kubectl get --raw "/api/v1/namespaces/shop/configmaps?watch=true&resourceVersion=$V&timeoutSeconds=1"
kubectl delete namespace shop
