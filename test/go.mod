module github.com/tidemark-dev/tidemark/test

go 1.26.0
