# Fit a table with mgcv's bam and predict, on the rows that mgcv.py has written.
#
#   Rscript mgcv.R FOLDER FORMULA FAMILY
#
# Reads train.csv (with column "target") and test.csv; writes mean.csv, std.csv (of f on the scale of
# the link) and figures.txt (a name and a number a line). Starting R and reading are not timed.

suppressMessages(library(mgcv))
arguments <- commandArgs(TRUE)
folder <- arguments[1]
formula <- as.formula(arguments[2])
family <- match.fun(arguments[3])()

train <- read.csv(file.path(folder, "train.csv"))
test <- read.csv(file.path(folder, "test.csv"))
for (name in names(test)) {
  if (is.character(train[[name]])) {
    levels <- unique(c(train[[name]], test[[name]]))
    train[[name]] <- factor(train[[name]], levels)
    test[[name]] <- factor(test[[name]], levels)
  }
}

figures <- list()
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

model <- timed("fit", bam(
  formula, family = family, data = train, discrete = TRUE, nthreads = 1,
  drop.unused.levels = FALSE
))
predicted <- timed("predict", predict(
  model, test, type = "link", se.fit = TRUE, discrete = FALSE
))
for (part in c("fit", "se.fit")) {
  file <- if (part == "fit") "mean.csv" else "std.csv"
  write.table(as.numeric(predicted[[part]]), file.path(folder, file),
    row.names = FALSE, col.names = FALSE)
}
figures$edf <- sum(model$edf)
figures$noise_variance <- model$sig2
figures$peak_memory_mb <- peak_memory()
writeLines(paste(names(figures), unlist(figures)), file.path(folder, "figures.txt"))
