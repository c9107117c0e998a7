#!/usr/bin/env bash
# Guess: locfit's local constant estimate is a weighted mean of the values, so it lies between the smallest and the largest.
# Found (locfit 1.5-9.7): as fitted by default it lies on cubics between a few vertices, which go on beyond the data: 110 gets
# -46 from values in [-1.2, 1.3].  Evaluated at given points (ev), a point far from all data gets the estimate of the point
# before it in the call, or the mean of all values if it is the first, with one warning that some weights are zero.
# Why it matters: estimates beyond the data depend on the order of the questions.
# Needs R of Debian 12 (r-base-core 4.2.2).
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work" && apt-get download -qq r-cran-locfit=1.5-9.7-1 r-cran-lattice && for each in *.deb; do dpkg -x "$each" .; done
R_LIBS="$work/usr/lib/R/site-library:$work/usr/lib/R/library" Rscript --vanilla - <<'R'
suppressMessages(library(locfit))
stopifnot(packageVersion("locfit") == "1.5.9.7")
x <- seq(0, 10, by = 0.25)
y <- sin(x) + 0.3 * cos(7 * x)
at <- function(points) suppressWarnings(predict(
  locfit.raw(x, y, kern = "gauss", alpha = c(0, 0.8), deg = 0, ev = points), where = "fitp"))
plain <- function(q) { w <- dnorm((x - q) / (0.8 / 2.5)); sum(w * y) / sum(w) }
stopifnot(isTRUE(all.equal(at(c(2, 7)), c(plain(2), plain(7)))))
default <- predict(locfit.raw(x, y, kern = "gauss", alpha = c(0, 0.8), deg = 0), 110)
cat(sprintf("values in [%.2f, %.2f], mean %.4f; by default at 110: %.1f\n", min(y), max(y), mean(y), default))
after <- list(c(2, 110), c(7, 110), 110)
found <- sapply(after, function(points) tail(at(points), 1))
for (i in 1:3) cat(sprintf("at 110 of the points (%s): %.4f\n", toString(after[[i]]), found[i]))
stopifnot(abs(default) > 10, all.equal(found, c(plain(2), plain(7), mean(y))))
R
