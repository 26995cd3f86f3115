# Fit y ~ s(V1) + ... + s(Vd) with mgcv's bam and predict, on the arrays that mgcv.py has written.
#
#   Rscript mgcv.R FOLDER BASIS_SIZE THREADS FAMILY
#
# Reads X.bin, y.bin, X_test.bin (doubles, column after column), shape.txt and, where there is one,
# offset.bin; writes mean.bin, std.bin (of f on the scale of the link, without offset) and
# figures.txt (a name and a number a line). Starting R and reading are not timed.

suppressMessages(library(mgcv))
arguments <- commandArgs(TRUE)
folder <- arguments[1]
basis_size <- as.integer(arguments[2])
threads <- as.integer(arguments[3])
family <- match.fun(arguments[4])()

path <- function(name) file.path(folder, name)
shape <- scan(path("shape.txt"), quiet = TRUE) # rows, columns, test rows

table_of <- function(name, rows) {
  file <- file(path(name), "rb")
  on.exit(close(file))
  columns <- lapply(seq_len(shape[2]), function(j) readBin(file, "double", rows))
  as.data.frame(setNames(columns, paste0("V", seq_len(shape[2]))))
}
rows <- table_of("X.bin", shape[1])
rows$y <- readBin(path("y.bin"), "double", shape[1])
test <- table_of("X_test.bin", shape[3])

# The whole formula is text: bam would look up a variable in it for every term.
# A column of few values, such as an indicator of a level, has no more basis functions than these.
sizes <- vapply(rows[seq_len(shape[2])], function(x) min(length(unique(x)), basis_size), 0)
terms <- ifelse(
  sizes > 3,
  sprintf("s(V%d, bs = 'cr', k = %d)", seq_len(shape[2]), as.integer(sizes)),
  sprintf("V%d", seq_len(shape[2]))
)
if (file.exists(path("offset.bin"))) {
  rows$shift <- readBin(path("offset.bin"), "double", shape[1])
  test$shift <- 0
  terms <- c(terms, "offset(shift)")
}
formula <- as.formula(paste("y ~", paste(terms, collapse = " + ")))

peak_memory <- function() { # MB; Linux only
  if (!file.exists("/proc/self/status")) return(NA)
  line <- grep("^VmHWM", readLines("/proc/self/status"), value = TRUE)
  as.numeric(gsub("[^0-9]", "", line)) / 1024
}
timed <- function(name, expression) {
  before <- proc.time()
  value <- force(expression)
  used <- proc.time() - before
  figures[[paste0(name, "_seconds")]] <<- used[["elapsed"]]
  figures[[paste0(name, "_cpu_seconds")]] <<- used[["user.self"]] + used[["sys.self"]]
  value
}

fit <- function(nthreads, data = rows) {
  bam(formula, family = family, data = data, discrete = TRUE, nthreads = nthreads)
}
for (call in 1:2) invisible(fit(1, head(rows, 2000))) # R compiles what is called a second time
figures <- list(memory_before_mb = peak_memory())
model <- timed("fit", fit(1))
figures$fit_peak_memory_mb <- peak_memory()
figures$threads <- 1
# Several threads change bam's algorithms, and may lose against one: the faster fit counts.
if (threads > 1) {
  one <- figures[c("fit_seconds", "fit_cpu_seconds")]
  timed("fit", fit(threads))
  all <- figures[names(one)]
  figures[paste0(names(one), "_one_thread")] <- one
  figures[paste0(names(one), "_all_threads")] <- all
  if (all$fit_seconds < one$fit_seconds) {
    figures$threads <- threads
  } else {
    figures[names(one)] <- one
  }
}
# Rounding test inputs to a grid, bam's default, is faster and less accurate: both are told.
rounded <- timed(
  "predict_rounded", predict(model, test, se.fit = TRUE, discrete = TRUE, n.threads = threads)
)
# Small blocks: the default ones take three times the memory, and no less time.
prediction <- timed(
  "predict", predict(model, test, se.fit = TRUE, discrete = FALSE, block.size = 10000)
)

figures$peak_memory_mb <- peak_memory()
figures$rounding_rms <- sqrt(mean((rounded$fit - prediction$fit)^2))
figures$noise_variance <- model$sig2
figures$effective_dof <- sum(model$edf)
figures$mgcv <- as.character(packageVersion("mgcv"))
figures$r <- paste0(R.version$major, ".", R.version$minor)
figures$blas <- basename(extSoftVersion()[["BLAS"]]) # a fast one is not the default everywhere
writeBin(as.numeric(prediction$fit), path("mean.bin"))
writeBin(as.numeric(prediction$se.fit), path("std.bin"))
text <- vapply(figures, format, "", digits = 15)
writeLines(paste(names(figures), text), path("figures.txt"))
