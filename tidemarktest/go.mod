module github.com/tidemark-dev/tidemark/tidemarktest

go 1.24.0
