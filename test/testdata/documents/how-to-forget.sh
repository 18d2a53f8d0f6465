tidemark serve --data-dir=./data
kubectl create secret generic db --from-literal=password=old-password
kubectl delete secret db
stop
OLD=$(printf old-password | base64)
grep -rq "$OLD" ./data
tidemark compact ./data
if grep -r --count "$OLD" ./data | grep -v ':0$'; then exit 1; fi
tidemark serve --data-dir=./data
kubectl get namespaces
