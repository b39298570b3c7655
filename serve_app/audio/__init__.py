"""Sound between the wire and the kernel: conversion, and which of it is speech."""
