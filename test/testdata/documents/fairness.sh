tidemark serve --in-memory
kubectl get --raw /version -v8 2>&1 | grep -i x-kubernetes-pf
kubectl get flowschemas,prioritylevelconfigurations -o custom-columns=NAME:.metadata.name,UID:.metadata.uid
