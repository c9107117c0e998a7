#!/usr/bin/env bash
# Guess: range.x says where locpoly is evaluated; the estimate at a point does not depend on it.
# Found (KernSmooth 2.23-20): data outside of range.x are left out (truncate=TRUE), so that estimates near its ends change.  With
# truncate=FALSE they are moved to the ends, and estimates there are worse.
# Why it matters: a look at a part of the range is another estimate than the whole.
# Needs R of Debian 12 (r-base-core 4.2.2).
set -eu
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work" && apt-get download -qq r-cran-kernsmooth=2.23-20-1 && dpkg -x r-cran-kernsmooth*.deb .
R_LIBS="$work/usr/lib/R/library:$work/usr/lib/R/site-library" Rscript --vanilla - <<'R'
suppressMessages(library(KernSmooth))
stopifnot(packageVersion("KernSmooth") == "2.23.20")
x <- seq(0, 10, by = 0.01)
y <- sin(x)
B <- 0.5
plain <- function(q, x, y) { w <- dnorm((x - q) / B); sum(w * y) / sum(w) }
first <- function(...) locpoly(x, y, degree = 0, bandwidth = B, range.x = c(3, 7), ...)$y[1]
whole <- locpoly(x, y, degree = 0, bandwidth = B)
whole <- approx(whole$x, whole$y, 3)$y
inside <- x >= 3 & x <= 7
cat(sprintf("at 3: %.4f of all data, %.4f with range.x = c(3, 7), %.4f also with truncate = FALSE; sin(3) = %.4f\n",
            whole, first(), first(truncate = FALSE), sin(3)))
stopifnot(abs(whole - plain(3, x, y)) < 1e-3, abs(first() - plain(3, x[inside], y[inside])) < 5e-3,
          abs(first() - whole) > 0.3, abs(first(truncate = FALSE) - whole) > 0.3)
R
