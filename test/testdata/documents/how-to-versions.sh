tidemark envtest-assets ./bin/tidemark-1.36 --kubernetes-version=1.36
grep -x 1.36 bin/tidemark-1.36/kubernetes-version
tidemark serve --emulated-version=1.36
kubectl get --raw /version | grep '"emulationMinor": "36"'
tidemark api-diff 1.36 1.37
tidemark api-diff 1.36 1.37 | grep 'gate .*HPAGeneration .*beta, on'
