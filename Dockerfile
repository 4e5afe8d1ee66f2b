# The operator's image, for those who have a container engine:
#   docker build --build-arg VERSION=0.1.0 -t pgsteward .
# `make operator-image` makes the same without one.
ARG GO_VERSION=1.26
FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY main.go ./
COPY apis apis
COPY controllers controllers
COPY internal internal
ARG VERSION=dev
ARG TARGETOS=linux
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X github.com/pgsteward/pgsteward/internal/cmd.version=$VERSION" -o /pgsteward .

FROM gcr.io/distroless/static:nonroot
ARG VERSION=dev
LABEL org.opencontainers.image.title="pgsteward" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.source="https://github.com/pgsteward/pgsteward" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="A Kubernetes operator for PostgreSQL"
COPY --from=build /pgsteward /pgsteward
USER 65532:65532
ENTRYPOINT ["/pgsteward"]
