# The catalog of every release, served to OLM. The cache is made when the image is, by the opm that serves it, so that a Pod of it
# is ready at once. OLM v1 (catalogd) reads the folder that the label names.
FROM quay.io/operator-framework/opm:v1.73.0 AS builder
ADD catalog /configs
RUN ["/bin/opm", "serve", "/configs", "--cache-dir=/tmp/cache", "--cache-only"]

FROM quay.io/operator-framework/opm:v1.73.0
LABEL operators.operatorframework.io.index.configs.v1=/configs
COPY --from=builder /configs /configs
COPY --from=builder /tmp/cache /tmp/cache
ENTRYPOINT ["/bin/opm"]
CMD ["serve", "/configs", "--cache-dir=/tmp/cache"]
